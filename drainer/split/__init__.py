"""What happens to a message before a handler gets it: it is decoded and split into sub-messages."""
