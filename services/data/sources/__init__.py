"""Sources: what keeps endpoints up to date from elsewhere. One that fails never stops another."""
