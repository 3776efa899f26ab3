OPTIONS=()
run=None
