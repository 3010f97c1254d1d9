"""Records what clients look at, for whoever plans where endpoints should be; never at the expense of a client."""
