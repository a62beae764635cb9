package main

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// parts are uploads that are not complete.  Each is a folder with one file for each part, and the object's name in a file.
// Parts wait on disk, so that memory holds only the object that is being completed.
type parts struct{ root string }

const (
	nameFile       = "object"
	partNumberMax  = 10_000
	partBytesMin   = 5 << 20 // except for the last part
	noSuchUploadIs = "The requested upload was not found."
)

var uploadID = regexp.MustCompile(`^[0-9a-f]{32}$`)

func partFile(number int, tag string) string { return fmt.Sprintf("part-%05d-%s", number, tag) }

func (p parts) begin(w http.ResponseWriter, bucket, key string) error {
	random := make([]byte, 16)
	rand.Read(random)
	id := hex.EncodeToString(random)
	folder := filepath.Join(p.root, id)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, nameFile), []byte(bucket+"/"+key), 0o600); err != nil {
		return err
	}
	send(w, 200, struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket   string
		Key      string
		UploadId string
	}{Bucket: bucket, Key: key, UploadId: id})
	return nil
}

// folder returns the folder of an upload of the object "bucket/key".
func (p parts) folder(object, id string) (string, error) {
	folder := filepath.Join(p.root, id)
	if uploadID.MatchString(id) {
		if name, err := os.ReadFile(filepath.Join(folder, nameFile)); err == nil && string(name) == object {
			return folder, nil
		}
	}
	return "", &fault{404, "NoSuchUpload", noSuchUploadIs, id}
}

// put keeps a part; a later part of the same number replaces it.
func (p parts) put(w http.ResponseWriter, object string, query url.Values, body []byte) error {
	folder, err := p.folder(object, query.Get("uploadId"))
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(query.Get("partNumber"))
	if err != nil || number < 1 || number > partNumberMax {
		return invalid("partNumber: " + query.Get("partNumber"))
	}
	sum := md5.Sum(body)
	tag := hex.EncodeToString(sum[:])
	if err := os.WriteFile(filepath.Join(folder, partFile(number, tag)), body, 0o600); err != nil {
		return err
	}
	same, _ := filepath.Glob(filepath.Join(folder, partFile(number, "*")))
	for _, file := range same {
		if !strings.HasSuffix(file, tag) {
			os.Remove(file)
		}
	}
	w.Header().Set("ETag", strconv.Quote(tag))
	return nil
}

// join returns the object that the listed parts make.
func (p parts) join(object, id string, list []byte) (io.ReadCloser, error) {
	folder, err := p.folder(object, id)
	if err != nil {
		return nil, err
	}
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(list, &asked); err != nil || len(asked.Part) == 0 {
		return nil, &fault{400, "MalformedCompleteMultipartUploadRequest", "The list of parts is not valid.", string(list)}
	}
	files := &joined{}
	for at, part := range asked.Part {
		file, err := os.Open(filepath.Join(folder, partFile(part.PartNumber, strings.Trim(part.ETag, `"`))))
		if err != nil {
			files.Close()
			return nil, &fault{400, "InvalidPart", "A part was not found, or its entity tag is another.", strconv.Itoa(part.PartNumber)}
		}
		files.files = append(files.files, file)
		info, err := file.Stat()
		switch {
		case err != nil:
		case at > 0 && part.PartNumber <= asked.Part[at-1].PartNumber:
			err = &fault{400, "InvalidPartOrder", "The list of parts was not in ascending order.", strconv.Itoa(part.PartNumber)}
		case at < len(asked.Part)-1 && info.Size() < partBytesMin:
			err = &fault{400, "EntityTooSmall", "A part other than the last is smaller than 5 MiB.", strconv.Itoa(part.PartNumber)}
		}
		if err != nil {
			files.Close()
			return nil, err
		}
		files.readers = append(files.readers, file)
	}
	files.Reader = io.MultiReader(files.readers...)
	return files, nil
}

func (p parts) forget(id string) { os.RemoveAll(filepath.Join(p.root, id)) }

type joined struct {
	io.Reader
	files   []*os.File
	readers []io.Reader
}

func (j *joined) Close() error {
	var all error
	for _, file := range j.files {
		all = errors.Join(all, file.Close())
	}
	return all
}
