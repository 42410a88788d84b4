package hooks

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// literal has the containers of a new pod get every command, argument and variable as it is
// written. Without it a kubelet takes $(NAME) in them for the value of that variable, which may be
// a secret, and what a spec says reaches them. It takes $$ for $ (the field args of Container in
// k8s.io/api/core/v1/types.go; third_party/forked/golang/expansion in Kubernetes). So nothing that
// we make refers to a variable by $(NAME).
//
// It is called where pods leave this package, once for each: in children for members and surveys,
// in job for Jobs.
func literal(pod *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			c := &list[i]
			c.Command, c.Args = doubled(c.Command), doubled(c.Args)
			for k := range c.Env {
				c.Env[k].Value = dollars.Replace(c.Env[k].Value)
			}
		}
	}
}

var dollars = strings.NewReplacer("$", "$$")

func doubled(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, dollars.Replace(word))
	}
	return all
}
