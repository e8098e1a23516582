//! Splits one page of a LIST into its items, without parsing parts that are not needed.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};

use super::error::ApiError;

/// A split page.
#[derive(Debug, Default)]
pub(crate) struct ListPage {
    pub items: Vec<ListItem>,
    /// The token of the next page; empty on the last page.
    pub next: String,
}

/// An item of a list.
#[derive(Debug)]
pub(crate) struct ListItem {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
    /// The JSON text. It may lack kind and version, which then only the list has.
    pub text: Bytes,
}

#[derive(Deserialize)]
struct ListHead {
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Names<'a>,
}

#[derive(Deserialize)]
struct Names<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
}

/// Splits the response to a LIST.
///
/// # Errors
/// The response is not a list.
pub(crate) fn split_page(text: &Bytes) -> Result<ListPage, ApiError> {
    let mut page = ListPage::default();
    let mut cursor = Cursor { text, at: 0 };
    cursor.between(b'{', b'}', |cursor| {
        let key: Cow<'_, str> = cursor.value()?;
        cursor.expect(b':')?;
        match &*key {
            "metadata" => page.next = cursor.value::<ListHead>()?.next,
            "items" if cursor.is_at(b'[') => cursor.between(b'[', b']', |cursor| {
                let start = cursor.at;
                let Head { metadata } = cursor.value()?;
                page.items.push(ListItem {
                    namespace: metadata.namespace.into_owned(),
                    name: metadata.name.into_owned(),
                    text: text.slice(start..cursor.at),
                });
                Ok(())
            })?,
            _ => drop(cursor.value::<IgnoredAny>()?),
        }
        Ok(())
    })?;
    Ok(page)
}

/// A position in a JSON text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Visits the parts of the object or list at this position, which commas separate.
    fn between(
        &mut self,
        open: u8,
        close: u8,
        mut part: impl FnMut(&mut Self) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.expect(open)?;
        if self.is_at(close) {
            return self.expect(close);
        }
        loop {
            part(self)?;
            if !self.is_at(b',') {
                return self.expect(close);
            }
            self.expect(b',')?;
        }
    }

    /// Skips white space. If the next byte is `byte`, consumes it and returns true.
    fn is_at(&mut self, byte: u8) -> bool {
        let space = self.text[self.at..]
            .iter()
            .take_while(|b| b.is_ascii_whitespace());
        self.at += space.count();
        self.text.get(self.at) == Some(&byte)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ApiError> {
        if !self.is_at(byte) {
            let what = format!("a list without `{}` at byte {}", char::from(byte), self.at);
            return Err(ApiError::Protocol(what.into()));
        }
        self.at += 1;
        Ok(())
    }

    /// Parses the value at this position.
    fn value<T: Deserialize<'a>>(&mut self) -> Result<T, ApiError> {
        let mut values = serde_json::Deserializer::from_slice(&self.text[self.at..]).into_iter::<T>();
        let value = match values.next() {
            Some(value) => value.map_err(|error| ApiError::Protocol(error.into()))?,
            None => return Err(ApiError::Protocol("a list that ends early".into())),
        };
        self.at += values.byte_offset();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn cut_text(text: &str) -> Result<ListPage, ApiError> {
        split_page(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_page_is_cut_into_its_items() {
        let page = cut_text(
            r#" {"kind":"ConfigMapList", "metadata":{"resourceVersion":"7","continue":"to\"ken"},
               "items":[ {"metadata":{"name":"a","namespace":"n","labels":{"name":"other"}},"data":{"x":"]}\",{"}} ,
                         {"data":{"metadata":"no"},"metadata":{"name":"b\u002dc"}}], "more":[1,null,{"items":[]}]} "#,
        )
        .unwrap();
        assert_eq!(page.next, "to\"ken");
        let names: Vec<_> = page
            .items
            .iter()
            .map(|item| (item.namespace.as_str(), item.name.as_str()))
            .collect();
        assert_eq!(names, [("n", "a"), ("", "b-c")]);
        let first: Value = serde_json::from_slice(&page.items[0].text).unwrap();
        assert_eq!(first["data"]["x"], "]}\",{");
        let second: Value = serde_json::from_slice(&page.items[1].text).unwrap();
        assert_eq!(second["data"]["metadata"], "no");
    }

    #[test]
    fn an_empty_list_has_no_items() {
        for items in ["[]", "[ ]", "null"] {
            let page = cut_text(&format!(r#"{{"items":{items},"metadata":{{}}}}"#)).unwrap();
            assert!(page.items.is_empty() && page.next.is_empty(), "{items}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"items":[{"metadata":{"name":"a"}}"#,
            r#"{"items":[{"metadata":{}}]}"#,
            r#"{"items":[{"metadata":{"name":"a"}} {"metadata":{"name":"b"}}]}"#,
            r#"{"items":[{"metadata":{"name":"a"}},]}"#,
        ] {
            assert!(matches!(cut_text(text), Err(ApiError::Protocol(_))), "{text}");
        }
    }
}
