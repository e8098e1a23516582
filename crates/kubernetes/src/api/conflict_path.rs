//! Converts the fields that the server names in a conflict to paths of a plan.

use konverge_base::model::{FieldPath, field_path::escape_component};

/// Converts a conflicting field, such as `.spec.containers[name="web"].image`, to a path of a plan.
pub(crate) fn conflict_path(field: &str) -> FieldPath {
    let mut path = String::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let end = tail.rfind("].").or_else(|| tail.strip_suffix(']').map(str::len));
            let nearest = tail.find("].").or(end).unwrap_or(tail.len());
            let keys = tail[..nearest].split(',').map(|part| part.replace('"', ""));
            let keys: Vec<_> = keys.filter(|part| part != "protocol=TCP").collect();
            path.push('/');
            path.push_str(&escape_component(&keys.join(",")));
            rest = tail.get(nearest + 1..).unwrap_or_default();
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            // A key such as an annotation's may contain dots, which the server does not quote. So only names
            // of the schema are split at dots.
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            path.push('/');
            path.push_str(&escape_component(&tail[..end]));
            rest = &tail[end..];
        }
    }
    rejoin_map_keys(&path).into()
}

/// Joins the keys of annotations, labels and data again, which contain dots that the server does not quote.
fn rejoin_map_keys(path: &str) -> String {
    for map in [
        "/metadata/annotations/",
        "/metadata/labels/",
        "/data/",
        "/matchLabels/",
        "/nodeSelector/",
        "/limits/",
        "/requests/",
    ] {
        if let Some(at) = path.find(map) {
            let (head, tail) = path.split_at(at + map.len());
            return format!("{head}{}", tail.replace('/', "."));
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_conflicts_are_paths() {
        assert_eq!(conflict_path(".spec.replicas"), "/spec/replicas");
        assert_eq!(
            conflict_path(".spec.template.spec.containers[name=\"web\"].image"),
            "/spec/template/spec/containers/name=web/image"
        );
        assert_eq!(
            conflict_path(".spec.ports[port=80,protocol=\"TCP\"].targetPort"),
            "/spec/ports/port=80/targetPort"
        );
        assert_eq!(
            conflict_path(".metadata.annotations.example.com/a.b"),
            "/metadata/annotations/example.com~1a.b"
        );
    }
}
