"""The socket server under real clients, good and bad."""
