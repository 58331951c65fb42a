"""Other processes of this machine find and steer a running drain through its Unix socket."""
