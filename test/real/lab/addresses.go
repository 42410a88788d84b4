package main

// The addresses exist only inside the lab's network namespaces, so that two
// labs may have the same. The host sees nothing but a port on 127.0.0.1.
const (
	serviceCIDR  = "10.96.0.0/16"
	apiServiceIP = "10.96.0.1"
	dnsServiceIP = "10.96.0.10"
	podsCIDR     = "10.244.0.0/16"
	nodesPrefix  = 24
)

// maxNodes: a single machine holds no more with pleasure.
const maxNodes = 9
