"""Pure: who is subscribed to what, what is retained, and which frame goes to whom. No I/O, no clocks."""
