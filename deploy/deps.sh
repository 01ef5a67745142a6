#!/bin/sh
# deploy/deps.sh run|test|race|e2e: see to it that the programs which `make run`, `make test`, `make race` or `make e2e`
# needs are installed. Each needs what the one before it needs.
#
# On Debian and Ubuntu, as root or with sudo that asks no password, missing programs are installed from the
# distribution. No service is started and no database cluster made, since Turnledger runs private ones. Elsewhere
# the command to run is printed. Exit status: 0 if nothing is missing (or if "run" has named what is missing), else 1.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

have_postgres() {
	have postgres && return 0
	for f in /usr/lib/postgresql/*/bin/postgres /usr/lib/postgresql*/bin/postgres /usr/pgsql-*/bin/postgres \
		/usr/libexec/postgresql*/postgres /opt/homebrew/opt/postgresql*/bin/postgres \
		/usr/local/opt/postgresql*/bin/postgres /home/linuxbrew/.linuxbrew/opt/postgresql*/bin/postgres \
		/Applications/Postgres.app/Contents/Versions/*/bin/postgres \
		/opt/local/lib/postgresql*/bin/postgres /usr/local/pgsql/bin/postgres; do
		[ -x "$f" ] && return 0
	done
	return 1
}

missing() {
	have_postgres || echo postgresql
	[ "$1" != run ] || return 0
	have redis-server || have valkey-server || echo redis-server
	# The race detector needs a C compiler to link.
	[ "$1" = test ] || have "${CC:-gcc}" || have cc || echo gcc libc6-dev
	have python3 || echo python3 # runs an example
	# Root mounts the power-cut test's file system itself.
	[ "$(uname)" != Linux ] || [ "$(id -u)" = 0 ] || have fusermount3 || have fusermount || echo fuse3
}

# What the browser tests need. Where it can't be installed, they fail.
have_browser() {
	have chromium || have chromium-browser || have google-chrome || have google-chrome-stable
}

wanted() {
	[ "$1" = e2e ] || return 0
	have_browser || echo chromium
	have npm || echo npm
}

# axe-core comes from the npm registry by a lock file, and is no part of this repository.
install_axe() {
	have npm || return 0
	here=$(cd "$(dirname "$0")" && pwd)
	axe=$here/../bin/axe
	cmp -s "$here/e2e/axe/package-lock.json" "$axe/installed.json" && return 0
	mkdir -p "$axe"
	cp "$here/e2e/axe/package.json" "$here/e2e/axe/package-lock.json" "$axe/"
	(cd "$axe" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) || return 0
	cp "$here/e2e/axe/package-lock.json" "$axe/installed.json"
}

tell() {
	echo >&2
	if have apt-get; then
		echo "Missing: $*. Run:  ${sudo_hint}apt-get install -y $*" >&2
	elif have brew; then
		echo "Missing: $*. Run:  brew install postgresql redis" >&2
	elif have dnf; then
		echo "Missing: $*. Run:  ${sudo_hint}dnf install -y postgresql-server redis gcc fuse3" >&2
	else
		echo "Missing: $*. Install it with your system's package manager." >&2
	fi
	echo >&2
}

apt_install() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
		install -y --no-install-recommends "$@" </dev/null
}

# What the packages would start or create is held back while they are installed, and allowed again afterwards.
created_policy=
changed_conf=
conf=/etc/postgresql-common/createcluster.conf
policy=/usr/sbin/policy-rc.d
restore() {
	[ -z "$created_policy" ] || $as_root rm -f "$policy"
	[ -z "$changed_conf" ] || $as_root sed -i '/^create_main_cluster = false # turnledger$/d' "$conf"
}

install_missing() {
	echo "Installing $* (from the distribution)"
	trap restore EXIT
	trap 'exit 130' INT TERM HUP
	if [ ! -e "$policy" ]; then
		created_policy=1
		printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
		$as_root chmod 755 "$policy"
	fi
	# A failed update need not matter: the packages may be known already.
	$as_root apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null || true
	case " $* " in *" postgresql "*)
		apt_install postgresql-common
		if ! grep -q '^create_main_cluster' "$conf" 2>/dev/null; then
			changed_conf=1
			echo 'create_main_cluster = false # turnledger' | $as_root tee -a "$conf" >/dev/null
		fi
		;;
	esac
	apt_install "$@"
}

what=${1:-}
case "$what" in run | test | race | e2e) ;; *)
	echo "usage: $0 run|test|race|e2e" >&2
	exit 2
	;;
esac
sudo_hint="sudo "
as_root="sudo -n"
if [ "$(id -u)" = 0 ]; then
	sudo_hint=
	as_root=
fi
# can_install WORDS: some are missing, and this machine can install them.
can_install() {
	[ -n "$1" ] && have apt-get && { [ -z "$as_root" ] || { have sudo && sudo -n true 2>/dev/null; }; }
}
for list in missing wanted; do # apart, so that a package which does not exist here holds up no other
	need=$($list "$what" | tr '\n' ' ')
	# shellcheck disable=SC2086 # a list of words
	! can_install "$need" || install_missing $need || true
done
if [ "$what" = e2e ]; then
	install_axe
	without=$(wanted e2e | tr '\n' ' ')
	[ -z "$without" ] || echo "the browser tests will fail: ${without% } could not be installed" >&2
fi
need=$(missing "$what" | tr '\n' ' ')
need=${need% }
[ -n "$need" ] || exit 0
tell "$need"
[ "$what" = run ]
