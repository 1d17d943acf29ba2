# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root is set by the sourcing script
# Builds the documentation site.

# Writes the generated pages to build/pages and runs MkDocs: make_site build|serve [FLAG…]
make_site() {
  local folder
  need_packages "$root/tests/tools/debian-packages-site.txt"
  folder=$(venv_of docs)
  need_once "$folder" make_venv "$folder" docs
  rm -rf build/pages
  PATH=$root/build/dev/bin:$PATH python -m tests.tools.site.gallery build/pages
  python -m tests.tools.site.reference build/pages/reference
  PYTHONPATH=$root "$folder/bin/mkdocs" "$@"
}
