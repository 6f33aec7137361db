module attributes {lathe.options = {targets = ["sparc"]}} {
}
