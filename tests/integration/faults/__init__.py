"""What breaks: clients that lie or vanish, disks, directories, and processes that are killed."""
