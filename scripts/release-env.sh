# Sourced with $work set, after release-stage.sh: go sees the modules of the stage as
# if they were published. The module cache is one of its own, so that nothing of this
# stays; what others have published is taken from the user's, if it is there. Without
# the paths of that cache in them, objects are found in the build cache the next time.
user=$(go env GOMODCACHE)/cache/download
export GOPROXY="file://$work/proxy,file://$user,$(go env GOPROXY)"
export GOMODCACHE=$work/cache GOPATH=$work/gopath GONOSUMDB=github.com/tideover/tideover GOWORK=off GOFLAGS='-mod=mod -modcacherw -trimpath'
unset GOBIN
