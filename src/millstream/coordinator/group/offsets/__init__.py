"""How far groups have read: commits, also in transactions, and what becomes of them.

`manager.OffsetManager` decides and replays; `tables` holds the state; `expiry` finds what is kept
for nobody any more. Whether somebody may commit is for the group to say.
"""
