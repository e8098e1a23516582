//! Links in the headers of a response: the next page, and the new address of a renamed repository.

use http::{HeaderMap, StatusCode, header};

/// Returns the path and query of the `rel="next"` link. The host in the link is ignored, so that the token goes
/// nowhere else.
pub(crate) fn next_page(headers: &HeaderMap, base_path: &str) -> Option<String> {
    let link = headers.get(header::LINK)?.to_str().ok()?;
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let address = next.split('<').nth(1)?.split('>').next()?;
    path_below(address, base_path)
}

/// Returns the target of a redirect, if it is a path of the same API.
pub(crate) fn redirect_target(status: StatusCode, headers: &HeaderMap, base_path: &str) -> Option<String> {
    let sent_on = matches!(status.as_u16(), 301 | 302 | 307 | 308);
    let location = headers.get(header::LOCATION).filter(|_| sent_on)?;
    path_below(location.to_str().ok()?, base_path)
}

fn path_below(address: &str, base_path: &str) -> Option<String> {
    let uri: http::Uri = address.parse().ok()?;
    let path = uri.path_and_query().map(|path| path.as_str());
    let path = path.filter(|path| path.starts_with('/'))?;
    Some(path.strip_prefix(base_path).unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_link_of_another_host_is_asked_of_ours() {
        let headers = headers(&[(
            "link",
            "<https://elsewhere/api/v3/repositories/1/issues/2/comments?page=2>; rel=\"next\", <https://x/y>; rel=\"last\"",
        )]);
        assert_eq!(
            next_page(&headers, "/api/v3").unwrap(),
            "/repositories/1/issues/2/comments?page=2"
        );
        let without_path = self::headers(&[("link", "<*>; rel=\"next\"")]);
        assert_eq!(next_page(&without_path, ""), None);
    }
}
