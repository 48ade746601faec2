"""Consumer groups of KIP-848: the coordinator assigns, members follow at their own pace.

`ConsumerGroups` decides about heartbeats; `ConsumerGroup` is what the records say; `reconciliation`
moves one member from what it has to what it should have, without two members ever owning a
partition; `subscriptions` says which topics a member means.
"""
