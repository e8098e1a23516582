//! Parses a field as the server names it in a refusal: `spec.containers[0].image`, `data[a.b]`,
//! `spec.ports[port=80].name`.

/// A step of the path to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// A name, the key of a map, or the keys of an item.
    Name(&'a str),
    /// The index of an item in the object that the server made of the request.
    Item(usize),
}

/// Returns the steps to a field; none if the text is not in the server's form.
pub(crate) fn steps(field: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            steps.push(inside.parse().map_or(Step::Name(inside), Step::Item));
            rest = after;
            continue;
        }
        let tail = rest.strip_prefix('.').unwrap_or(rest);
        let end = tail.find(['.', '[']).unwrap_or(tail.len());
        if end == 0 {
            return Vec::new();
        }
        steps.push(Step::Name(&tail[..end]));
        rest = &tail[end..];
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_to_a_field_are_those_of_the_server() {
        assert_eq!(
            steps("spec.containers[10].env[A].value"),
            [
                Step::Name("spec"),
                Step::Name("containers"),
                Step::Item(10),
                Step::Name("env"),
                Step::Name("A"),
                Step::Name("value")
            ]
        );
        assert_eq!(steps("data[a.b]"), [Step::Name("data"), Step::Name("a.b")]);
        assert_eq!(steps(""), []);
        assert_eq!(steps("spec..a"), []);
    }
}
