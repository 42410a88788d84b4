//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// apiClient asks the API server, as administrator, what `up` waits for. It is
// here because starting kubectl for each try costs a tenth of a second of CPU,
// which the API server needs for its own start.
type apiClient struct {
	http   *http.Client
	server string
}

func (l *lab) newAPIClient() (*apiClient, error) {
	pair, err := tls.LoadX509KeyPair(l.pki("admin.crt"), l.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	root, err := os.ReadFile(l.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}
	return &apiClient{
		http:   &http.Client{Timeout: 5 * time.Second, Transport: transport},
		server: "https://" + l.hostAddress(),
	}, nil
}

func (a *apiClient) get(path string) ([]byte, error) {
	response, err := a.http.Get(a.server + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", path, response.Status, lastLines(string(body), 3))
	}
	return body, nil
}

func (a *apiClient) ready() error {
	_, err := a.get("/readyz")
	return err
}

func (a *apiClient) nodeReady(name string) error {
	body, err := a.get("/api/v1/nodes/" + name)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return fmt.Errorf("%s is not Ready: %s", name, c.Message)
		}
		if c.Type == "Ready" {
			return nil
		}
	}
	return fmt.Errorf("%s has not yet said how it is", name)
}
