// release makes what lies beside the binaries of a release: for each quorate the plugin kubectl-quorate in an archive,
// the plugin's manifest for krew, the Helm charts and the kustomizations with the digest of the image, and the
// provenance of all. The same binaries give the same bytes. See test/tools/release.sh.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// licencesFile has the licences of all modules, and of Go. It is beside the binaries already.
const licencesFile = "THIRD-PARTY-LICENSES.txt"

func main() {
	var b build
	flag.StringVar(&b.version, "version", "", "`version` of the release")
	flag.StringVar(&b.revision, "revision", "", "its `commit`, all digits")
	flag.StringVar(&b.command, "command", "", "`words` that make it")
	seconds := flag.Int64("created", 0, "its time in `seconds` since 1970")
	source := flag.String("source", ".", "`folder` with its LICENSE and manifests")
	flag.Parse()
	if err := release(*source, b, time.Unix(*seconds, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release does all of it for binaries with names such as quorate-linux-amd64, and leaves it beside them.
func release(source string, b build, created time.Time, binaries []string) error {
	if len(binaries) == 0 {
		return errors.New("no binaries")
	}
	folder := filepath.Dir(binaries[0])
	own, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return err
	}
	licences, err := os.ReadFile(filepath.Join(folder, licencesFile))
	if err != nil {
		return err
	}
	var archives []archive
	for _, file := range binaries {
		if strings.Count(filepath.Base(file), "-") > 2 { // not the program quorate, which is the plugin too
			continue
		}
		a, err := pluginOf(file, created, []packed{{"LICENSE", 0o644, own}, {licencesFile, 0o644, licences}})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		archives = append(archives, a)
	}
	manifest, err := krew(b.version, archives)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, krewFile), manifest, 0o644); err != nil {
		return err
	}
	if err := packTrees(folder, source, created); err != nil {
		return err
	}
	statement, err := provenance(folder, b, binaries) // of all that is there: the last
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, provenanceFile), statement, 0o644)
}

func packTrees(folder, source string, created time.Time) error {
	digest, err := imageDigest(folder)
	if err != nil {
		return err
	}
	for _, c := range trees {
		packed, err := tree(c.name, filepath.Join(source, c.folder), c.without, digest, created)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, c.file), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pluginOf makes the archive of one binary with more files, and returns it.
func pluginOf(file string, created time.Time, more []packed) (archive, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return archive{}, err
	}
	name := strings.TrimSuffix(file, ".exe")
	plugin := "kubectl-quorate"
	packedIn := strings.Replace(filepath.Base(name), "quorate", plugin, 1) + ".tar.gz"
	if name != file {
		plugin += ".exe"
	}
	text, err := pack(created, append([]packed{{plugin, 0o755, content}}, more...))
	if err != nil {
		return archive{}, err
	}
	return archive{packedIn, plugin, text}, os.WriteFile(filepath.Join(filepath.Dir(file), packedIn), text, 0o644)
}

// packed is one file of an archive.
type packed struct {
	name    string
	mode    int64
	content []byte
}

// pack makes a .tar.gz of files that all have this time and no owner.
func pack(created time.Time, files []packed) ([]byte, error) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: created}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), zip.Close())
	return b.Bytes(), err
}
