# Sourced by kamaji.sh and karmada.sh, which install other projects' operators from checkouts of their sources: a folder that goes with the
# script, and images of programs for the lab.
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

image() { # REF PROGRAM AS [FILE=PATH]: the program is found at /bin/AS, by its name too
  bin/lab image -o "$out/image.tar" -ref "$1" -user "${user:-65532}" -env PATH=/bin -entrypoint "/bin/$3" "$2=/bin/$3" "${@:4}"
  bin/lab load "$out/image.tar"
}

kubernetes() { # TAG PROGRAM...: the lab's own programs, as images of Kubernetes'
  for program in "${@:2}"; do
    image "registry.k8s.io/$program:$1" "$QUORATE_LAB_BIN/kubernetes" "$program"
  done
}
