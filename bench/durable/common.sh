# What run.sh and waiting.sh share: a folder on a real disk, the program, and
# what the page says about the machine.
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOWORK=off # the versions of our go.mod, not those of the workspace

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ "$(stat -f -c %T "$dir")" = tmpfs ]; then
	echo "$dir is in memory, where syncing costs nothing; set TMPDIR to a folder on a disk" >&2
	exit 1
fi
go build -o "$dir/measure" ./cmd/measure

about() {
	echo "date: $(date -u +%F)"
	echo "cpu: $(nproc) × $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)"
	echo "memory: $(awk '/MemTotal/ {printf "%.0f GB", $2/1e6}' /proc/meminfo)"
	echo "kernel: $(uname -sr)"
	echo "disk: $(df --output=fstype "$dir" | tail -1)"
	echo "go: $(go env GOVERSION)"
	echo "rounds: $1"
	echo "load: $(cut -d' ' -f1 /proc/loadavg)"
}

# load says how busy the machine is, before a round: numbers are worth little if
# it is, and the page says so.
load() { echo "load: $(cut -d' ' -f1 /proc/loadavg)"; }
