// A sync hook of the lab's own smoke test: a Greeting's text should be in a
// ConfigMap of the same name.
package main

import (
	"encoding/json"
	"log"
	"net/http"
)

type request struct {
	Parent struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Text string `json:"text"`
		} `json:"spec"`
	} `json:"parent"`
	Children map[string]map[string]any `json:"children"`
}

func sync(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{
		"status": map[string]any{"children": len(asked.Children["ConfigMap.v1"])},
		"children": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": asked.Parent.Metadata.Name},
			"data":     map[string]any{"text": asked.Parent.Spec.Text},
		}},
	})
}

func main() {
	http.HandleFunc("/sync", sync)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
