"""Quorums of the metadata log under message loss, crashes and changes of the voters."""
