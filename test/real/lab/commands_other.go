//go:build !linux

package main

func init() {
	for _, c := range []string{"up", "down", "env", "ps", "metacontroller", "cert-manager", "etcd", "expandable",
		"load", "exec", "start", "stop", "again", "logs", "poweroff", "poweron"} {
		commands = append(commands,
			labCommand{c, "", "(on Linux alone)", func(*lab, []string) error { return errNotLinux }})
	}
}
