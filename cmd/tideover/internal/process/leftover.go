package process

// Leftovers says by what the processes are known that an attempt has left behind. They are
// of interest if the process that supervised the attempt was killed.
type Leftovers struct {
	Env    []string `json:"env"`              // "NAME=value", all of which a leftover has in its environment; none finds nothing
	Cgroup string   `json:"cgroup,omitempty"` // folder of the cgroup that the command was started in
}
