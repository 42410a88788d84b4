//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/quorate-dev/quorate/server/wire"
)

// What a call holds of one object, as far as record needs it.
type recordedObject struct {
	APIVersion string
	Kind       string
	Metadata   struct{ Name, UID string }
	Data       map[string]string
}

// recordingFile has the call that is recorded and repeated, from the root of the project.
const recordingFile = "test/real/bench/scale/testdata/call.json"

// record writes the call that Metacontroller makes about a cluster that is at rest, with all fields that the API
// server has, and without what is secret in it: private keys, and the token of the hooks.
func record(ctx context.Context, args []string) error {
	var namespace, name, out string
	flags := flag.NewFlagSet("scale record", flag.ContinueOnError)
	flags.StringVar(&namespace, "namespace", "default", "`namespace` of the EtcdCluster")
	flags.StringVar(&name, "name", "demo", "its `name`")
	flags.StringVar(&out, "o", recordingFile, "`file` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parent, err := kubectl(ctx, "-n", namespace, "get", "etcdcluster", name)
	if err != nil {
		return err
	}
	var cluster recordedObject
	if err := json.Unmarshal(parent, &cluster); err != nil {
		return err
	}
	controller, err := kubectl(ctx, "get", "compositecontroller", "quorate-etcdcluster")
	if err != nil {
		return err
	}
	children, secrets, err := childrenOf(ctx, namespace, cluster.Metadata.UID)
	if err != nil {
		return err
	}
	whole, err := json.Marshal(map[string]any{
		"controller": json.RawMessage(controller), "parent": json.RawMessage(parent), "children": children,
		"related":    map[string]any{"Secret.v1": struct{}{}, "EtcdSnapshot.etcd.quorate.dev/v1beta1": struct{}{}},
		"finalizing": false,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, withoutSecrets(whole, secrets), 0o644)
}

// childrenOf are the children by group and name, and the Secrets among them.
func childrenOf(ctx context.Context, namespace, uid string) (map[string]map[string]json.RawMessage, []recordedObject,
	error) {
	children := map[string]map[string]json.RawMessage{}
	for _, group := range wire.Groups() {
		children[group] = map[string]json.RawMessage{}
	}
	raw, err := kubectl(ctx, "-n", namespace, "get", "pods,pvc,cm,svc,pdb,secrets,netpol", "-l", "controller-uid="+uid)
	if err != nil {
		return nil, nil, err
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, nil, err
	}
	var secrets []recordedObject
	for _, item := range list.Items {
		var o recordedObject
		if err := json.Unmarshal(item, &o); err != nil && o.Kind == "" {
			return nil, nil, err
		}
		if children[o.Kind+"."+o.APIVersion] == nil {
			return nil, nil, errors.New("a child of the kind " + o.Kind)
		}
		children[o.Kind+"."+o.APIVersion][o.Metadata.Name] = item
		if o.Kind == "Secret" {
			secrets = append(secrets, o)
		}
	}
	return children, secrets, nil
}

// password is the token in the URL of a hook.
var password = regexp.MustCompile(`(https?://[^:/"]+:)[^@/"]+@`)

// withoutSecrets puts words in the place of all that must stay secret.
func withoutSecrets(text []byte, secrets []recordedObject) []byte {
	for _, s := range secrets {
		for key, value := range s.Data {
			if strings.HasSuffix(key, ".key") {
				words := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%s of %s was left out of the recording", key, s.Metadata.Name)))
				text = bytes.ReplaceAll(text, []byte(value), []byte(words))
			}
		}
	}
	return password.ReplaceAll(text, []byte("${1}TOKEN@"))
}

func kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kubectl", append(args, "-o", "json", "--show-managed-fields")...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}
