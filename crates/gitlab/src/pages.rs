//! Lists with several pages. GitLab names the next page in a header. A list may change between two requests, so
//! each is sorted with new items at the end.

use http::{HeaderMap, Method};
use konverge_forge::Result;
use konverge_rest::TokenPermission;
use serde::de::DeserializeOwned;

use crate::client::Client;

/// The number of items on a page, which is GitLab's maximum.
pub(super) const PAGE: usize = 100;

/// The maximum number of pages of a list.
const MOST_PAGES: usize = 200;

impl Client {
    /// Reads the items of all pages.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
    ) -> Result<Vec<T>> {
        let (mut all, mut next) = (Vec::new(), Some(1));
        while let Some(page) = next {
            if page > MOST_PAGES {
                let cause = format!("more than {MOST_PAGES} pages");
                return Err(self.rest.malformed(format!("GET {path}"), cause));
            }
            let found = self.page(path, need, page).await?;
            all.extend(found.items);
            next = found.next;
        }
        Ok(all)
    }

    /// Reads one page, from 1.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        need: TokenPermission,
        page: usize,
    ) -> Result<Page<T>> {
        let more = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{more}per_page={PAGE}&page={page}");
        let answer = self.rest.repeatable(Method::GET, &path, None, need).await?;
        let items: Vec<T> = self.rest.read(&format!("GET {path}"), &answer)?;
        let next = next_page(&answer.headers, page, items.len())
            .map_err(|cause| self.rest.malformed(format!("GET {path}"), cause))?;
        Ok(Page { items, next })
    }
}

/// A page of a list.
pub(super) struct Page<T> {
    /// The items on the page.
    pub(super) items: Vec<T>,
    /// The number of the next page, if there is one.
    pub(super) next: Option<usize>,
}

/// Returns the number of the next page, if there is one. `count` is the number of items on this page. A proxy may
/// have removed the header; then a full page is assumed to have a next one.
fn next_page(headers: &HeaderMap, page: usize, count: usize) -> Result<Option<usize>, &'static str> {
    let Some(said) = headers.get("x-next-page") else {
        return Ok((count >= PAGE).then_some(page + 1));
    };
    match said.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(said) if said.parse() == Ok(page + 1) => Ok(Some(page + 1)),
        _ => Err("its header X-Next-Page names no next page"),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_next_page_is_the_next_number_or_none() {
        let next = |said: Option<&'static str>, page, count| {
            let said = said.map(|said| {
                let name = http::HeaderName::from_static("x-next-page");
                (name, HeaderValue::from_static(said))
            });
            next_page(&HeaderMap::from_iter(said), page, count)
        };
        assert_eq!(next(Some("2"), 1, 100), Ok(Some(2)));
        // Hidden items leave a page shorter, so the header counts and not the number of items.
        assert_eq!(next(Some("3"), 2, 1), Ok(Some(3)));
        assert_eq!(next(Some(""), 2, 100), Ok(None));
        assert_eq!(next(None, 1, PAGE), Ok(Some(2)));
        assert_eq!(next(None, 1, PAGE - 1), Ok(None));
        for wrong in ["1", "7", "-1", "x"] {
            assert!(next(Some(wrong), 1, 100).is_err(), "{wrong}");
        }
    }
}
