# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and the functions are the sourcing script's
# Builds all files for a release into build/release-VERSION. docs/releasing.md lists the files, and
# states which of them are identical in two builds of the same commit.

project_version() { sed -n 's/^project(attnbias VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt; }

# Prints the section of CHANGELOG.md for a version, without its heading.
release_notes() {
  awk -v heading="## $1 " 'index($0 " ", heading) == 1 { inside = 1; next }
    /^## / { inside = 0 }
    inside' CHANGELOG.md | sed '/./,$!d'
}

# Archives files in a fixed order, with a fixed time and owner: pack FILE.tar.gz FOLDER NAME…
pack() {
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --format=ustar -C "$2" "${@:3}" | gzip --no-name >"$1"
}

release_contract() {
  local folder=$1 version=$2
  buf build proto --path proto/attnbias -o "$folder/attnbias-contract-$version.binpb"
  pack "$folder/attnbias-contract-$version.tar.gz" proto attnbias
}

# Helm writes the time of packaging into its archive, so the files are archived again.
release_chart() {
  local folder=$1 version=$2 stage
  stage=$(mktemp -d)
  helm package --destination "$stage" deploy/helm/attnbias
  tar --extract --gzip -C "$stage" -f "$stage/attnbias-$version.tgz"
  pack "$folder/attnbias-chart-$version.tgz" "$stage" attnbias
  rm -r "$stage"
}

# proxy.golang.org serves module archives in this form.
release_go_module() {
  local folder=$1 version=$2 module
  module=$(sed -n 's/^module //p' client/go/go.mod)
  (cd client/go && git archive --format=zip --prefix="$module@v$version/" \
    --add-file="$root/LICENSE" --output="$folder/attnbias-go-$version.zip" HEAD)
}

release() {
  local version folder notes suite
  (($# == 0)) || die "release: got $*, want no arguments"
  ((EUID == 0)) || die "release: creating machines of each Debian release needs root"
  [[ -z $(git status --porcelain) ]] ||
    die "release: got uncommitted changes, want a clean working tree"
  version=$(project_version)
  notes=$(release_notes "$version")
  [[ -n $notes ]] || die "release: CHANGELOG.md has no section for $version"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  folder=$root/build/release-$version
  rm -rf "$folder"
  mkdir -p "$folder"
  printf '%s\n' "$notes" >"$folder/RELEASE_NOTES.md"

  need_image_tools
  need_helm
  need_arm64
  release_contract "$folder" "$version"
  release_chart "$folder" "$version"
  release_go_module "$folder" "$version"
  build_wheels x86_64 aarch64
  mv "$wheels"/*.whl "$folder"
  (cd client/python && "$(venv_of wheel)/bin/hatchling" build --target sdist --directory "$folder")
  build_packages
  for suite in "${suites[@]}"; do
    mkdir "$folder/$suite"
    mv "$packages/$suite"/* "$folder/$suite"
  done
  python -m tests.support.image archive "$folder" "$version"
  local sums
  sums=$(cd "$folder" && find . -type f -printf '%P\n' | sort | xargs sha256sum)
  printf '%s\n' "$sums" >"$folder/SHA256SUMS"
  say "Built $version into ${folder#"$root/"}"
}
