"""How a person makes plans, applies them and takes them back: what the commands of `diem` for plans do."""
