# Sourced by the other scripts: leaves the shell in the checkout with `.venv` ready, made once and kept while its
# inputs stay the same. Plain bash 3.2, no GNU-only tools. HEADWAY_PYTHON names the Python to use.

set -eu

HEADWAY_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$HEADWAY_ROOT"
HEADWAY_VENV="$HEADWAY_ROOT/.venv"
# Two lines, written last: what a venv is tied to (Python, place), and what was asked to be installed.
HEADWAY_STAMP="$HEADWAY_VENV/headway-stamp"

headway_fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Prints nothing and succeeds when $1 is a working Python of version 3.11 or later.
headway_is_python() {
  "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

headway_has_venv() {
  "$1" -I -c 'import ensurepip, venv' >/dev/null 2>&1
}

# Sets HEADWAY_PY to a Python >= 3.11 that can make virtual environments, or says what is missing.
headway_find_python() {
  local candidate lacking=""
  if [ -n "${HEADWAY_PYTHON:-}" ]; then
    headway_is_python "$HEADWAY_PYTHON" ||
      headway_fail "HEADWAY_PYTHON is '$HEADWAY_PYTHON', which is not a working Python 3.11 or later."
    set -- "$HEADWAY_PYTHON"
  else
    set -- python3.13 python3.12 python3.11 python3 python
  fi
  for candidate in "$@"; do
    headway_is_python "$candidate" || continue
    if headway_has_venv "$candidate"; then
      HEADWAY_PY="$candidate"
      return 0
    fi
    lacking="${lacking:-$candidate}"
  done
  if [ -n "$lacking" ]; then
    headway_fail "$lacking has no venv module. Install it:" "  apt install python3-venv" \
      "(on Debian and Ubuntu; or set HEADWAY_PYTHON to another Python 3.11 or later)"
  fi
  headway_fail "Headway needs Python 3.11 or later, and none was found (tried: $*)." \
    "Install one from your package manager or python.org, or set HEADWAY_PYTHON to its path."
}

# The stamp that belongs to Python $1, this place and these dependency files.
headway_stamp_for() {
  "$1" -I -S - "$HEADWAY_ROOT" <<'PY'
import hashlib, pathlib, sys

root = pathlib.Path(sys.argv[1])
files = hashlib.sha256()
for name in ("pyproject.toml", "constraints.txt"):
    files.update((root / name).read_bytes() + b"\0")
print(hashlib.sha256(f"{sys.version} {sys.platform} {root}".encode()).hexdigest())
print(files.hexdigest())
PY
}

headway_install() {
  local quiet="--quiet"
  [ -t 1 ] && quiet=""
  # The stamp goes first and comes back last: whatever interrupts the install leaves a venv that is made anew.
  rm -f "$HEADWAY_STAMP"
  # $quiet is unquoted on purpose: nothing at all when empty.
  "$HEADWAY_VENV/bin/python" -m pip install $quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' ||
    headway_fail "Installing Headway's dependencies failed; pip's message stands above." \
      "pip needs the package index, or your own pip settings must name one that has torch. Run this again afterwards."
  printf '%s\n' "$1" >"$HEADWAY_STAMP"
}

headway_setup() {
  local want have=""
  # A working venv answers for its own Python; HEADWAY_PYTHON may ask for another.
  HEADWAY_PY="${HEADWAY_PYTHON:-$HEADWAY_VENV/bin/python}"
  if ! headway_is_python "$HEADWAY_PY" || [ ! -f "$HEADWAY_STAMP" ]; then
    headway_find_python
  fi
  want="$(headway_stamp_for "$HEADWAY_PY")"
  if [ -f "$HEADWAY_STAMP" ] && headway_is_python "$HEADWAY_VENV/bin/python"; then
    have="$(cat "$HEADWAY_STAMP")"
  fi
  if [ "$have" = "$want" ]; then
    return 0
  fi
  if [ "$(printf '%s\n' "$have" | head -n 1)" = "$(printf '%s\n' "$want" | head -n 1)" ]; then
    printf 'Dependencies changed: updating .venv\n'
  else
    headway_find_python
    want="$(headway_stamp_for "$HEADWAY_PY")"
    printf 'Making .venv with %s (the first time this installs torch, which is large)\n' \
      "$("$HEADWAY_PY" --version 2>&1)"
    rm -rf "$HEADWAY_VENV"
    "$HEADWAY_PY" -m venv "$HEADWAY_VENV" || headway_fail "Python could not make a virtual environment in $HEADWAY_VENV."
  fi
  headway_install "$want"
}

headway_setup
