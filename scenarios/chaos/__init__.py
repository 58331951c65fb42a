"""A drain through a bad night: killed, stopped, starved and robbed, and what it lost by that."""
