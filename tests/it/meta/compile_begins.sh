#!/bin/sh
# In the place of rustc (RUSTC_WRAPPER): answers what Cargo asks about the compiler, and ends where the compile begins.
case "$*" in
*"--crate-name ___"* | *-vV*) exec "$@" ;;
esac
echo "the compile begins" >&2
exit 1
