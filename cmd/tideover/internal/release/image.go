package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// The image runs as this user, and writes only to these folders.
const imageUser = 65532

var imageFolders = []string{"data", "tmp"}

// Media types of the Open Container Initiative.
const (
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// object is a JSON object.
type object = map[string]any

// imageConfig is what packaging/Dockerfile says.
func imageConfig(r release) object {
	return object{
		"User": fmt.Sprintf("%d:%d", imageUser, imageUser),
		"Env": []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"TIDEOVER_CONFIG=/etc/tideover/config.yaml", "TIDEOVER_SERVER_DATA=/data",
		},
		"Volumes":      object{"/data": object{}},
		"WorkingDir":   "/data",
		"ExposedPorts": object{"7878/tcp": object{}},
		"Healthcheck": object{ // read by Docker; not in the specification
			"Test": []string{"CMD", "/usr/bin/tideover", "health"}, "Interval": 30 * time.Second, "Timeout": 5 * time.Second, "StartPeriod": 10 * time.Second,
		},
		"Entrypoint": []string{"/usr/bin/tideover"},
		"Cmd":        []string{"serve"},
		"Labels": object{
			"org.opencontainers.image.source": homepage, "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": license,
		},
	}
}

// writeImage writes an image with one layer, the files, as a tar archive with the layout of OCI. The
// archive also has the manifest.json that Docker reads if it has no store for such layouts.
func writeImage(w io.Writer, files []member, r release) error {
	for _, name := range imageFolders {
		files = append(files, member{name: name, mode: fs.ModeDir | 0o700, owner: imageUser})
	}
	var layer bytes.Buffer
	if err := writeTar(&layer, withFolders(files), r.at); err != nil {
		return err
	}
	var blobs []member
	add := func(kind string, data []byte) object {
		blobs = append(blobs, member{name: "blobs/sha256/" + digest(data), mode: 0o644, data: data})
		return object{"mediaType": kind, "digest": "sha256:" + digest(data), "size": len(data)}
	}
	layers := []object{add(typeLayer, compress(layer.Bytes()))}
	config := add(typeConfig, encode(object{
		"created": r.at, "architecture": r.arch, "os": r.system, "config": imageConfig(r),
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer.Bytes())}},
		"history": []object{{"created": r.at, "created_by": "make release", "comment": "tideover " + r.version}},
	}))
	manifest := add(typeManifest, encode(object{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": layers}))
	manifest["platform"] = object{"architecture": r.arch, "os": r.system}
	manifest["annotations"] = object{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/tideover:" + r.version}
	docker := []object{{"Config": blobs[1].name, "RepoTags": []string{"tideover:" + r.version}, "Layers": []string{blobs[0].name}}}
	return writeTar(w, append(blobs,
		member{name: "index.json", mode: 0o644, data: encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{manifest}})},
		member{name: "manifest.json", mode: 0o644, data: encode(docker)},
		member{name: "oci-layout", mode: 0o644, data: encode(object{"imageLayoutVersion": "1.0.0"})},
	), r.at)
}

// encode returns a value as JSON.
func encode(value any) []byte {
	data, _ := json.Marshal(value) // objects, strings, numbers and times
	return data
}

// readImage follows the layout from its index to the layer, and returns the files of the layer.
func readImage(data []byte) ([]member, error) {
	files, err := readTar(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	content := map[string][]byte{}
	for _, f := range files {
		if sum, ok := strings.CutPrefix(f.name, "blobs/sha256/"); ok && sum != digest(f.data) {
			return nil, fmt.Errorf("%s has other contents", f.name)
		}
		content[f.name] = f.data
	}
	type descriptor struct{ Digest string }
	blob := func(d descriptor) []byte { return content["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] }
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(content["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		return nil, errors.Join(errors.New("this is not an image"), err)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(blob(index.Manifests[0]), &manifest); err != nil || len(manifest.Layers) != 1 || blob(manifest.Config) == nil {
		return nil, errors.Join(errors.New("the image has no manifest with one layer"), err)
	}
	return readTarGz(blob(manifest.Layers[0]))
}
