package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of SPDX 2.3 (ISO/IEC 5962) that say what a Go binary consists of.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string          `json:"SPDXID"`
		Name      string          `json:"name"`
		Version   string          `json:"versionInfo"`
		Supplier  string          `json:"supplier"`
		Download  string          `json:"downloadLocation"`
		Analyzed  bool            `json:"filesAnalyzed"`
		Purpose   string          `json:"primaryPackagePurpose,omitempty"`
		Checksums []spdxChecksum  `json:"checksums,omitempty"`
		Concluded string          `json:"licenseConcluded"`
		Declared  string          `json:"licenseDeclared"`
		Copyright string          `json:"copyrightText"`
		Comment   string          `json:"comment,omitempty"`
		Refs      []spdxReference `json:"externalRefs"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Of   string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	none    = "NOASSERTION"
	ownPath = "github.com/quorate-dev/quorate"
)

// sbom is the SPDX document of a binary, from what Go has written into it.
func sbom(name, version string, created time.Time, content []byte, info *debug.BuildInfo,
	linked map[string]*module) []byte {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	own := goPackage(ownPath, version, []string{"Apache-2.0"})
	own.Purpose, own.Checksums = "APPLICATION", []spdxChecksum{{"SHA256", sum}}
	settings := []string{info.GoVersion}
	for _, s := range info.Settings {
		settings = append(settings, s.Key+"="+s.Value)
	}
	own.Comment = "built with " + strings.Join(settings, " ")
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + " " + version,
		Namespace: "https://" + ownPath + "/spdx/" + version + "/" + name + "/" + sum,
		Creation: spdxCreation{created.Format(time.RFC3339),
			[]string{"Organization: Quorate", "Tool: quorate-release"}},
		Packages: []spdxPackage{own}, Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", own.ID}},
	}
	depends := func(p spdxPackage) {
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{own.ID, "DEPENDS_ON", p.ID})
	}
	depends(goPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), []string{"BSD-3-Clause"}))
	for _, dep := range info.Deps {
		m := linked[moduleOf(dep).String()]
		p := goPackage(m.Path, m.Version, m.ids())
		p.Comment = "go.sum " + m.Sum
		depends(p)
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil { // it holds nothing but strings
		panic(err)
	}
	return append(text, '\n')
}

// notInIDs is what an SPDX identifier can't have.
var notInIDs = regexp.MustCompile(`[^A-Za-z0-9.]+`)

func goPackage(path, version string, licences []string) spdxPackage {
	expression := strings.Join(licences, " AND ")
	download := none
	if path != "stdlib" && path != ownPath {
		download = "https://proxy.golang.org/" + escaped(path) + "/@v/" + escaped(version) + ".zip"
	}
	return spdxPackage{
		ID: "SPDXRef-" + notInIDs.ReplaceAllString(path+"-"+version, "-"), Name: path, Version: version, Supplier: none,
		Download:  download,
		Concluded: expression, Declared: expression, Copyright: none,
		Refs: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(path) + "@" +
			strings.ReplaceAll(version, "+", "%2B")}},
	}
}

// escaped writes capitals as Go's module proxies want them.
func escaped(s string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(s,
		func(c string) string { return "!" + strings.ToLower(c) })
}
