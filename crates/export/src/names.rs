//! Names of files and of the target's own objects. They derive from a Spec, which may contain any text, so they are
//! always cleaned.

use std::collections::HashSet;

use konverge_base::model::{Digest, ResourceId, StackId};

/// The maximum length of a name that is derived from an object, in characters.
const LONGEST: usize = 100;

/// Returns the name of a stack without slashes and capitals: `shop/prod` becomes `shop-prod`.
pub fn stack_slug(stack: &StackId) -> String {
    plain(&stack.as_str().replace('/', "-"))
}

/// Reduces a text to lower-case letters, digits, dots and dashes, beginning and ending with a letter or a digit. A
/// changed text gets a part of its digest, so that different texts stay different.
fn plain(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
    let mut name: String = text
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c if allowed(c) => c,
            _ => '-',
        })
        .collect();
    let is_whole = text.chars().all(|c| allowed(c) || c == '-') && name.len() <= LONGEST;
    name.truncate(LONGEST);
    let name = name.trim_matches(['-', '.']);
    if is_whole && name.len() == text.len() {
        name.to_owned()
    } else {
        format!("{name}-{}", &Digest::of_bytes(text.as_bytes()).short()[..8])
    }
}

/// Gives each object a unique file name, such as `deployment-shop-web`.
#[derive(Debug, Default)]
pub(crate) struct ObjectNames(HashSet<String>);

impl ObjectNames {
    /// Returns the file name of an object, without an extension.
    pub(crate) fn name(&mut self, id: &ResourceId, kind: &str, namespace: &str, name: &str) -> String {
        let parts = [kind, namespace, name];
        let parts = parts.iter().filter(|part| !part.is_empty());
        let text = parts.copied().collect::<Vec<_>>().join("-");
        let kind = kind.to_ascii_lowercase();
        let short = plain(&format!("{kind}{}", &text[kind.len()..]));
        if self.0.insert(short.clone()) {
            return short;
        }
        let longer = format!(
            "{short}-{}",
            &Digest::of_bytes(id.as_str().as_bytes()).short()[..8]
        );
        self.0.insert(longer.clone());
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_two_objects_have_two() {
        let mut names = ObjectNames::default();
        let mut name = |id: &str, kind: &str, namespace: &str, object: &str| {
            names.name(&id.parse().unwrap(), kind, namespace, object)
        };
        assert_eq!(name("a", "Deployment", "shop", "web"), "deployment-shop-web");
        let other = name("b", "Deployment", "shop", "web");
        assert!(
            other.starts_with("deployment-shop-web-") && other.len() == 28,
            "{other}"
        );
        let hostile = name("c", "ConfigMap", "", "../../.git/x");
        assert!(
            !hostile.contains('/') && hostile.starts_with("configmap-..-..-.git-x-"),
            "{hostile}"
        );
        assert_ne!(
            name("d", "ClusterRole", "", "a:b"),
            name("e", "ClusterRole", "", "a-b")
        );
        assert!(name("f", "ConfigMap", "", &"x".repeat(300)).len() < 120);
    }

    #[test]
    fn a_stack_is_called_after_its_identity() {
        let slug = |id: &str| stack_slug(&id.parse().unwrap());
        assert_eq!(slug("acme/shop/prod"), "acme-shop-prod");
        assert!(slug("Shop/prod").starts_with("shop-prod-"));
        assert!(slug("sh_op/prod").starts_with("sh-op-prod-"));
    }
}
