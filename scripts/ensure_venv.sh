#!/bin/sh
# Give a Python the means to make virtual environments: ensure_venv.sh PYTHON
# Debian and Ubuntu keep them in a package of its own. It is installed if that takes no question; else the command that
# installs it is printed, and the exit status is 1.
set -eu
python=$1
"$python" -c 'import ensurepip, venv' 2>/dev/null && exit

package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
as_root=
[ "$(id -u)" = 0 ] || as_root="sudo "
if command -v apt-get >/dev/null && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
	echo "$python cannot make virtual environments; installing $package with apt-get"
	log=$(mktemp)
	{ ${as_root}apt-get update -qq && ${as_root}env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "$package"; } </dev/null >"$log" 2>&1 && rm "$log" && exit
	tail -5 "$log" >&2
	rm "$log"
fi
echo "$python cannot make virtual environments. On Debian or Ubuntu, run this and then make again:" >&2
echo "  ${as_root}apt-get update && ${as_root}apt-get install -y $package" >&2
exit 1
