// The XML interface of Google Cloud Storage over fake-gcs-server, for tests.
//
// fake-gcs-server keeps the objects, gives them generations and checks conditions of puts.  Its own XML interface takes no
// plain put, no upload in parts and no page of a listing.  This front adds them.
//
// Guarantees
//
//  1. A write is complete or has no effect, also when this process is killed.  A write that was answered stays.
//  2. Of racing writes with one x-goog-if-generation-match, exactly one is done.
//  3. A read sees one generation of an object, whole.  A listing contains every write that was answered before it.
//  4. Nothing is ignored in silence: a request that this front does not know gets 501 NotImplemented.
//
// With -key-interval, a write that comes sooner after the last write of its key gets 429 SlowDown, as Google answers it.
//
// Limits: a key may not be a folder of another key ("a" beside "a/b"), because objects are files.  Nobody is asked for
// credentials.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const (
	matchHeader = "X-Goog-If-Generation-Match"
	keysMax     = 1000
	graceS      = 1
)

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$`)
	// Requests with these headers ask for more than this front does.
	notKnown = []string{
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Content-Encoding",
		"X-Goog-Copy-Source", "X-Goog-If-Metageneration-Match",
	}
)

type front struct {
	objects *fakestorage.Server
	inner   http.Handler
	buckets string
	parts   parts
	limit   limit
	// A read holds it shared until it has its bytes: fake-gcs-server looks an object up first and opens its file later.
	mu sync.RWMutex
}

// fault is an answer other than success, in Google's words.
type fault struct {
	status                 int
	code, message, details string
}

func (f *fault) Error() string { return f.code + ": " + f.details }

func noSuchKey(bucket, key string) error {
	return &fault{404, "NoSuchKey", "The specified key does not exist.", "No such object: " + bucket + "/" + key}
}

func invalid(details string) error {
	return &fault{400, "InvalidArgument", "Invalid argument.", details}
}

func notImplemented(details string) error {
	return &fault{501, "NotImplemented", "The requested feature is not implemented.", details}
}

var preconditionFailed = &fault{412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.", ""}

func main() {
	listen := flag.String("listen", "", "address to listen on, as 127.0.0.1:4443")
	root := flag.String("root", "", "folder of the objects; each folder of its folder buckets is a bucket")
	interval := flag.Duration("key-interval", 0, "answer 429 to a write that comes sooner after the last write of its key")
	flag.Parse()
	front, err := open(*root, *interval)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *listen, Handler: front}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-stopped.Done()
		grace, cancel := context.WithTimeout(context.Background(), graceS*time.Second)
		defer cancel()
		server.Shutdown(grace)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-ended
}

func open(root string, interval time.Duration) (*front, error) {
	buckets, uploads := filepath.Join(root, "buckets"), filepath.Join(root, "uploads")
	for _, folder := range []string{buckets, uploads} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	objects, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, StorageRoot: buckets})
	if err != nil {
		return nil, err
	}
	last := map[string]time.Time{}
	made := &front{objects: objects, inner: objects.HTTPHandler(), buckets: buckets, parts: parts{uploads}, limit: limit{interval, last}}
	return made, made.sweep()
}

// sweep deletes files without metadata: a process that was killed left them, before it answered the write.  fake-gcs-server
// could not list their bucket.
func (f *front) sweep() error {
	return filepath.WalkDir(f.buckets, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, _ := filepath.Rel(f.buckets, path)
		bucket, key, isObject := strings.Cut(filepath.ToSlash(inside), "/")
		if !isObject || strings.HasSuffix(key, ".metadata") || f.generation(bucket, key) != 0 {
			return nil
		}
		log.Printf("deleted what is left of an unfinished write: %s", path)
		return os.Remove(path)
	})
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f.serve(w, r)
	if err == nil {
		return
	}
	var told *fault
	if !errors.As(err, &told) {
		log.Printf("%s %s: %v", r.Method, r.URL, err)
		told = &fault{500, "InternalError", "We encountered an internal error. Please try again.", err.Error()}
	}
	send(w, told.status, struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
		Details string `xml:",omitempty"`
	}{Code: told.code, Message: told.message, Details: told.details})
}

// serve answers the request, or returns the error to answer.
func (f *front) serve(w http.ResponseWriter, r *http.Request) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	for _, name := range notKnown {
		if r.Header.Get(name) != "" {
			return notImplemented("header " + name)
		}
	}
	for _, name := range strings.Split(key, "/") {
		if key != "" && (name == "" || name == "." || name == "..") {
			return notImplemented("a key with an empty part, . or .. : " + key)
		}
	}
	match := r.Header.Get(matchHeader)
	if _, err := strconv.ParseInt(match, 10, 64); match != "" && err != nil {
		return invalid(matchHeader + ": " + match)
	}
	if info, err := os.Stat(filepath.Join(f.buckets, bucket)); !bucketName.MatchString(bucket) || err != nil || !info.IsDir() {
		return &fault{404, "NoSuchBucket", "The specified bucket does not exist.", bucket}
	}
	// The whole body comes before the lock: a client that stalls holds up nobody, and one that breaks off writes nothing.
	body := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	if _, err := body.ReadFrom(r.Body); err != nil {
		return &fault{400, "IncompleteBody", "The request body is shorter than its length.", err.Error()}
	}
	upload := query.Get("uploadId")
	switch name := bucket + "/" + key; {
	case key == "" && r.Method == "GET" && query.Get("list-type") == "2":
		return f.list(w, bucket, query)
	case key == "":
		return notImplemented(r.Method + " of a bucket")
	case r.Method == "POST" && query.Has("uploads"):
		return f.parts.begin(w, bucket, key)
	case r.Method == "PUT" && query.Has("uploadId"):
		return f.parts.put(w, name, query, body.Bytes())
	case r.Method == "POST" && query.Has("uploadId"):
		content, err := f.parts.join(name, upload, body.Bytes())
		if err != nil {
			return err
		}
		defer content.Close()
		if err := f.put(w, bucket, key, r, content); err != nil {
			return err
		}
		f.parts.forget(upload)
		send(w, 200, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket  string
			Key     string
			ETag    string
		}{Bucket: bucket, Key: key, ETag: w.Header().Get("ETag")})
	case r.Method == "DELETE" && query.Has("uploadId"):
		if _, err := f.parts.folder(name, upload); err != nil {
			return err
		}
		f.parts.forget(upload)
		w.WriteHeader(204)
	case r.Method == "PUT" && len(query) == 0:
		return f.put(w, bucket, key, r, body)
	case r.Method == "DELETE" && len(query) == 0:
		return f.remove(w, bucket, key, match)
	case r.Method == "GET" || r.Method == "HEAD":
		return f.get(w, bucket, key, r)
	default:
		return notImplemented(r.Method + " with " + r.URL.RawQuery)
	}
	return nil
}

// generation returns 0 for an object that is not there.
func (f *front) generation(bucket, key string) int64 {
	object, err := f.objects.GetObjectStreaming(bucket, key)
	if err != nil {
		return 0
	}
	object.Close()
	return object.Generation
}

func (f *front) holds(bucket, key, match string) bool {
	return match == "" || match == strconv.FormatInt(f.generation(bucket, key), 10)
}

// put keeps an object, and sets the headers of the answer.
func (f *front) put(w http.ResponseWriter, bucket, key string, r *http.Request, content io.Reader) error {
	query := url.Values{"uploadType": {"media"}, "name": {key}}
	if match := r.Header.Get(matchHeader); match != "" {
		query.Set("ifGenerationMatch", match)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.limit.check(bucket + "/" + key); err != nil {
		return err
	}
	kind := http.Header{"Content-Type": r.Header["Content-Type"]}
	done, err := f.ask("POST", "/upload/storage/v1/b/"+bucket+"/o?"+query.Encode(), kind, content)
	if err != nil {
		return err
	}
	if done.status == 412 {
		return preconditionFailed
	}
	var made struct{ Generation, Etag, Size, Md5Hash, Crc32c string }
	if err := json.Unmarshal(done.Bytes(), &made); done.status != 200 || err != nil {
		return fmt.Errorf("put of %s/%s: %d %s", bucket, key, done.status, done)
	}
	w.Header().Set("ETag", strconv.Quote(made.Etag))
	w.Header().Set("X-Goog-Generation", made.Generation)
	w.Header().Set("X-Goog-Metageneration", "1")
	w.Header().Set("X-Goog-Hash", "crc32c="+made.Crc32c+",md5="+made.Md5Hash)
	w.Header().Set("X-Goog-Stored-Content-Length", made.Size)
	return nil
}

func (f *front) remove(w http.ResponseWriter, bucket, key, match string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.limit.check(bucket + "/" + key); err != nil {
		return err
	}
	if !f.holds(bucket, key, match) {
		return preconditionFailed
	}
	done, err := f.ask("DELETE", "/storage/v1/b/"+bucket+"/o/"+url.PathEscape(key), nil, nil)
	switch {
	case err != nil:
		return err
	case done.status == 404:
		return noSuchKey(bucket, key)
	case done.status != 200:
		return fmt.Errorf("delete of %s/%s: %d %s", bucket, key, done.status, done)
	}
	w.WriteHeader(204)
	return nil
}

func (f *front) get(w http.ResponseWriter, bucket, key string, r *http.Request) error {
	done, err := f.read(bucket, key, r)
	if err != nil {
		return err
	}
	for name, values := range done.header {
		w.Header()[name] = values
	}
	w.WriteHeader(done.status)
	w.Write(done.Bytes()) // an error is the client's: it went away
	return nil
}

func (f *front) read(bucket, key string, r *http.Request) (*answer, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.holds(bucket, key, r.Header.Get(matchHeader)) {
		return nil, preconditionFailed
	}
	path := "/download/storage/v1/b/" + bucket + "/o/" + url.PathEscape(key)
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	done, err := f.ask(r.Method, path, http.Header{"Range": r.Header["Range"]}, nil)
	if err == nil && done.status == 404 {
		return nil, noSuchKey(bucket, key)
	}
	return done, err
}

// answer is what fake-gcs-server answers.
type answer struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.status = status
	if size, err := strconv.Atoi(a.header.Get("Content-Length")); err == nil {
		a.Grow(size + bytes.MinRead) // once: objects have tens of megabytes
	}
}

func (f *front) ask(method, path string, header http.Header, body io.Reader) (*answer, error) {
	request, err := http.NewRequest(method, "http://front"+path, body)
	if err != nil {
		return nil, err
	}
	if request.Body == nil {
		request.Body = http.NoBody
	}
	for name, values := range header {
		if len(values) > 0 {
			request.Header[name] = values
		}
	}
	done := &answer{header: http.Header{}, status: 200}
	f.inner.ServeHTTP(done, request)
	return done, nil
}

type content struct {
	Key            string
	Generation     int64
	MetaGeneration int64
	LastModified   string
	ETag           string
	Size           int64
}

type prefix struct{ Prefix string }

// list answers a page: keys after start-after, or after the last name of the page before it.
func (f *front) list(w http.ResponseWriter, bucket string, query url.Values) error {
	most := keysMax
	if asked := query.Get("max-keys"); asked != "" {
		number, err := strconv.Atoi(asked)
		if err != nil || number < 1 {
			return invalid("max-keys: " + asked)
		}
		most = min(number, keysMax)
	}
	after := query.Get("start-after")
	if token := query.Get("continuation-token"); token != "" {
		name, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return invalid("continuation-token: " + token)
		}
		after = string(name)
	}
	options := fakestorage.ListOptions{Prefix: query.Get("prefix"), Delimiter: query.Get("delimiter")}
	if after != "" {
		options.StartOffset = after + "\x00" // the first name after it
	}
	f.mu.RLock()
	found, err := f.objects.ListObjectsWithOptionsPaginated(bucket, options)
	f.mu.RUnlock()
	if err != nil {
		return err
	}
	names := slices.Clone(found.Prefixes)
	for _, object := range found.Objects {
		names = append(names, object.Name)
	}
	slices.Sort(names)
	page := struct {
		XMLName               xml.Name `xml:"http://doc.s3.amazonaws.com/2006-03-01 ListBucketResult"`
		Name                  string
		Prefix                string
		KeyCount              int
		MaxKeys               int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
		CommonPrefixes        []prefix
	}{Name: bucket, Prefix: options.Prefix, MaxKeys: most, IsTruncated: len(names) > most}
	if page.IsTruncated {
		names = names[:most]
		page.NextContinuationToken = base64.URLEncoding.EncodeToString([]byte(names[most-1]))
	}
	page.KeyCount = len(names)
	for _, object := range found.Objects {
		if _, here := slices.BinarySearch(names, object.Name); here {
			changed := object.Updated.UTC().Format("2006-01-02T15:04:05.000Z")
			page.Contents = append(page.Contents, content{object.Name, object.Generation, 1, changed, strconv.Quote(object.Etag), object.Size})
		}
	}
	for _, name := range found.Prefixes {
		if _, here := slices.BinarySearch(names, name); here {
			page.CommonPrefixes = append(page.CommonPrefixes, prefix{name})
		}
	}
	send(w, 200, page)
	return nil
}

func send(w http.ResponseWriter, status int, body any) {
	text, err := xml.Marshal(body)
	if err != nil {
		panic(err) // all bodies are structs of this program
	}
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(status)
	io.WriteString(w, xml.Header)
	w.Write(text)
}

// limit is the number of writes that one key takes: one in each interval.
type limit struct {
	interval time.Duration
	last     map[string]time.Time
}

const limitMessage = "The object exceeded the rate limit for object mutation operations (create, update, and delete). " +
	"Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429."

func (l *limit) check(key string) error {
	if l.interval == 0 {
		return nil
	}
	now := time.Now()
	if now.Sub(l.last[key]) < l.interval {
		return &fault{429, "SlowDown", limitMessage, strings.Replace(limitMessage, "The object", "The object "+key, 1)}
	}
	for other, last := range l.last {
		if now.Sub(last) >= l.interval {
			delete(l.last, other)
		}
	}
	l.last[key] = now
	return nil
}
