//! Reads `<project>/crd/**`: the CustomResourceDefinitions of a project. They are appended to the Spec of each of
//! its stacks, as Kusion does.

use std::collections::HashMap;

use super::{SpecError, parse, reserved_markers};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, spec::Spec},
    yaml,
};

/// Returns true for a file below `<project>/crd/` that is read as a CRD file.
pub fn is_crd_file(path: &RepoPath) -> bool {
    let name = path.file_name();
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

/// Appends the objects in these files, in the order of their paths. Files that are not CRD files are skipped.
///
/// # Errors
/// A file is not YAML, contains something that is not a Kubernetes object, or contains an object that is
/// already in the Spec.
pub fn append_crds<B: AsRef<[u8]>>(spec: &mut Spec, files: &[(RepoPath, B)]) -> Result<(), SpecError> {
    let mut files: Vec<_> = files.iter().filter(|(path, _)| is_crd_file(path)).collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    let mut seen: HashMap<_, _> = spec
        .resources
        .iter()
        .enumerate()
        .map(|(index, resource)| (resource.id.clone(), format!("resource {} of the Spec", index + 1)))
        .collect();
    for (path, content) in files {
        let refused = |message: &str| UserError::new(ErrorKind::Spec, message);
        let text = std::str::from_utf8(content.as_ref())
            .map_err(|_| refused("is not UTF-8").at(path.as_str(), None, None))?;
        let documents = yaml::documents(text)
            .map_err(|error| refused(&error.message).at(path.as_str(), error.line, error.column))?;
        for (index, document) in documents.iter().enumerate() {
            let origin = if documents.len() > 1 {
                format!("{path}, document {}", index + 1)
            } else {
                path.to_string()
            };
            if document.get("apiVersion").is_none() || document.get("kind").is_none() {
                let what = "is not a Kubernetes object: it has no `apiVersion` and `kind`";
                return Err(refused(what).at(path.as_str(), None, None).into());
            }
            let resource = parse::read_resource(document, &origin)?;
            parse::add(resource, origin, spec, &mut seen)?;
        }
    }
    reserved_markers::refuse(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<(RepoPath, Vec<u8>)> {
        list.iter()
            .map(|(path, text)| (RepoPath::normalize(path).unwrap(), text.as_bytes().to_vec()))
            .collect()
    }

    fn crd(name: &str) -> String {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {name}}}\n"
        )
    }

    #[test]
    fn every_document_of_every_file_is_appended_in_order() {
        let two = format!("{}---\n{}", crd("b.x"), crd("c.x"));
        let mut spec = Spec::default();
        let given = files(&[
            ("p/crd/z.yaml", &crd("z.x")),
            ("p/crd/a.yml", &two),
            ("p/crd/README.md", "# no"),
        ]);
        append_crds(&mut spec, &given).unwrap();
        let ids: Vec<_> = spec.resources.iter().map(|r| r.id.name()).collect();
        assert_eq!(ids, ["b.x", "c.x", "z.x"]);
        let error = append_crds(&mut spec, &given[..1]).unwrap_err();
        assert!(error.to_string().contains("is already that of"), "{error}");
    }

    #[test]
    fn only_yaml_and_json_are_files_of_crds() {
        let is = |path: &str| is_crd_file(&RepoPath::normalize(path).unwrap());
        assert!(is("p/crd/a.yaml") && is("p/crd/a.yml") && is("p/crd/a.json"));
        assert!(!is("p/crd/README.md") && !is("p/crd/a.yaml.orig"));
    }

    #[test]
    fn a_document_is_named_by_its_number_if_a_file_has_several() {
        let unnamed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n";
        let error = |text: &str| {
            let given = files(&[("p/crd/x.yaml", text)]);
            append_crds(&mut Spec::default(), &given).unwrap_err().to_string()
        };
        assert!(!error(unnamed).contains("document"), "{}", error(unnamed));
        let two = error(&format!("{}---\n{unnamed}", crd("b.x")));
        assert!(two.contains("p/crd/x.yaml, document 2"), "{two}");
    }

    #[test]
    fn what_is_no_object_is_named_by_file() {
        for text in [
            "a: 1\n",
            "- 1\n",
            "a: [\n",
            "apiVersion: v1\n",
            "kind: ConfigMap\n",
        ] {
            let error = append_crds(&mut Spec::default(), &files(&[("p/crd/x.yaml", text)])).unwrap_err();
            let failure = konverge_base::error::UserError::from(error);
            assert_eq!(failure.location.unwrap().file, "p/crd/x.yaml");
        }
    }
}
