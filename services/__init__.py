"""The services of DIEM: one package each; they never import each other."""
