# Writes the schemas by which kubeconform judges packaging/*.yaml: those of the newest Kubernetes
# that the package kubernetes-validate has, and one of a custom resource.
# Arguments: the definition of that resource, and a directory.
import json
import pathlib
import re
import sys

import kubernetes_validate
import yaml


def strict(schema):
    """Refuses what an object does not name, as an API server does."""
    if isinstance(schema, dict):
        named = schema.get("type") == "object" and "properties" in schema
        if named and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            strict(part)
    elif isinstance(schema, list):
        for part in schema:
            strict(part)


def number(directory):
    return [int(part) for part in re.findall(r"\d+", directory.name)]


definition, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
package = pathlib.Path(kubernetes_validate.__file__).parent
newest = max(package.glob("kubernetes-json-schema/v*-local-strict"), key=number)
for file in newest.glob("*.json"):
    text = file.read_text().replace('"/api/_definitions.json', f'"file://{out}/_definitions.json')
    (out / file.name).write_text(text)

resource = yaml.safe_load(definition.read_text())["spec"]
for version in resource["versions"]:
    schema = version["schema"]["openAPIV3Schema"]
    strict(schema)
    group = resource["group"].split(".")[0]
    name = f"{resource['names']['singular']}-{group}-{version['name']}.json"
    (out / name).write_text(json.dumps(schema))
print(f"schemas of {newest.name}")
