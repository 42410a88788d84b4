package kubelet

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Variables are those of a container, by name.
type Variables func(name string) (value string, is bool)

// Environment is that of a container, and the same to be looked up in. A value may name variables that stand above it.
// Elsewhere is what the value is that lies in another object, or in the pod; others are those that the container gets
// besides, from whole objects.
func Environment(list []corev1.EnvVar, elsewhere func(*corev1.EnvVarSource) (string, error), others Variables) (
	map[string]string, Variables, error) {
	env := map[string]string{}
	find := func(name string) (string, bool) {
		value, is := env[name]
		if !is && others != nil {
			return others(name)
		}
		return value, is
	}
	for _, e := range list {
		if e.ValueFrom == nil {
			env[e.Name] = expand(e.Value, find)
			continue
		}
		value, err := elsewhere(e.ValueFrom)
		if err != nil {
			return nil, nil, err
		}
		env[e.Name] = value
	}
	return env, find, nil
}

// Field is what a pod says in a field that a container or a volume names: here always one of its annotations.
func Field(pod *corev1.Pod, field *corev1.ObjectFieldSelector) string {
	key := strings.TrimPrefix(field.FieldPath, "metadata.annotations['")
	return pod.Annotations[strings.TrimSuffix(key, "']")]
}

// CommandLine is that of a container as its program sees it.
func CommandLine(c *corev1.Container, find Variables) (line []string) {
	for _, arg := range slices.Concat(c.Command, c.Args) {
		line = append(line, expand(arg, find))
	}
	return line
}

// expand is what a kubelet makes of a command, an argument or a value: $(NAME) is the value of that
// variable, and stays as it is when there is none; $$ is $ (the field args of Container in
// k8s.io/api/core/v1/types.go, and third_party/forked/golang/expansion in Kubernetes).
func expand(text string, variable Variables) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		rest := text[i+1:]
		end := strings.IndexByte(rest, ')')
		switch {
		case rest[0] == '$':
			out.WriteByte('$')
			i++
		case rest[0] == '(' && end > 0:
			value, is := variable(rest[1:end])
			if !is {
				value = "$" + rest[:end+1]
			}
			out.WriteString(value)
			i += end + 1
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}
