"""One module per migration; each one's ``down_revision`` names the one before."""
