//! Request bodies, bounded in bytes and in time.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

use super::error::{ApiError, ErrorDetail};

/// Reads a whole body of at most `max_bytes`, as sent, within `timeout`. A body that came in one
/// piece is not copied.
///
/// # Errors
/// 413 `body_too_large` as soon as that is known, from the announced length before anything is
/// read; 408 `body_timeout`; 400 `body_broken` when the client went away or its framing is wrong.
pub async fn read_body<B>(body: B, max_bytes: usize, timeout: Duration) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    read_body_with(body, max_bytes, timeout, |_| Ok(())).await
}

/// The same, and `reserve` is told the size of every piece before it is kept, so that a caller can
/// bound what all bodies together hold by what has really come.
///
/// # Errors
/// Those of [`read_body`], and those of `reserve`, which end the reading.
pub async fn read_body_with<B>(
    body: B,
    max_bytes: usize,
    timeout: Duration,
    reserve: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().lower();
    if usize::try_from(announced).map_or(true, |announced| announced > max_bytes) {
        return Err(too_large(max_bytes).got(announced).with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let mut collected = pin!(collect(body, max_bytes, reserve));
    // A small body is there with its head: then no clock has to be asked.
    if let Poll::Ready(at_once) = poll_fn(|cx| Poll::Ready(collected.as_mut().poll(cx))).await {
        return at_once;
    }
    tokio::time::timeout(timeout, collected).await.unwrap_or_else(|_| {
        let limit_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Err(ErrorDetail::new("body_timeout", "the body took too long, in milliseconds")
            .limit(limit_ms)
            .with_status(StatusCode::REQUEST_TIMEOUT))
    })
}

fn too_large(max_bytes: usize) -> ErrorDetail {
    ErrorDetail::new("body_too_large", "the body is too large, in bytes").limit(max_bytes)
}

async fn collect<B>(
    mut body: B,
    max_bytes: usize,
    mut reserve: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let Some(first) = next_chunk(&mut body).await? else { return Ok(Bytes::new()) };
    check(first.len(), max_bytes)?;
    reserve(first.len())?;
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = next_chunk(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let mut chunk = second;
    loop {
        check(whole.len() + chunk.len(), max_bytes)?;
        reserve(chunk.len())?;
        whole.extend_from_slice(&chunk);
        match next_chunk(&mut body).await? {
            Some(next) => chunk = next,
            None => return Ok(whole.freeze()),
        }
    }
}

fn check(read: usize, max_bytes: usize) -> Result<(), ApiError> {
    if read <= max_bytes {
        return Ok(());
    }
    Err(too_large(max_bytes).got("more").with_status(StatusCode::PAYLOAD_TOO_LARGE))
}

/// The next data frame; trailers are skipped.
async fn next_chunk<B>(body: &mut B) -> Result<Option<Bytes>, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ErrorDetail::new("body_broken", "the body ended early or is wrongly framed")
                .with_status(StatusCode::BAD_REQUEST));
        };
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::body::Body;
    use futures::{StreamExt, stream};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn chunks(chunks: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(
            chunks.iter().map(|chunk| Ok::<_, io::Error>(Bytes::from_static(chunk.as_bytes()))),
        ))
    }

    fn code(result: Result<Bytes, ApiError>) -> (u16, &'static str) {
        let error = result.unwrap_err();
        (error.status().as_u16(), error.detail().code)
    }

    #[tokio::test]
    async fn joins_what_fits() {
        for (pieces, whole) in
            [(&[][..], ""), (&["abc"], "abc"), (&["ab", "c"], "abc"), (&["a", "", "b", "cd"], "abcd")]
        {
            assert_eq!(read_body(chunks(pieces), 4, SECOND).await.unwrap(), whole, "{pieces:?}");
        }
        assert_eq!(read_body(Body::from("abcd"), 4, SECOND).await.unwrap(), "abcd");
        assert_eq!(read_body(Body::empty(), 0, SECOND).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from(vec![b'x'; 1000]);
        let read = read_body(Body::from(bytes.clone()), 1000, SECOND).await.unwrap();
        assert_eq!(read.as_ptr(), bytes.as_ptr());
    }

    #[tokio::test]
    async fn more_than_the_limit_is_413() {
        let announced = read_body(Body::from("abcde"), 4, SECOND).await.unwrap_err();
        assert_eq!((announced.status().as_u16(), announced.detail().got.clone()), (413, Some(5_u64.into())));
        assert_eq!(announced.detail().limit, Some(4_u64.into()));
        for pieces in [&["abcde"][..], &["abcd", "e"], &["ab", "cd", "e"]] {
            assert_eq!(code(read_body(chunks(pieces), 4, SECOND).await), (413, "body_too_large"));
        }
        // Endless: it has to stop by itself.
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[0; 1024])));
        assert_eq!(
            code(read_body(Body::from_stream(endless), 1 << 20, SECOND).await),
            (413, "body_too_large")
        );
    }

    #[tokio::test]
    async fn every_piece_is_reserved_before_it_is_kept() {
        let mut left = 4;
        let mut reserve = |bytes: usize| match bytes {
            more if more > left => Err(ApiError::internal()),
            fits => {
                left -= fits;
                Ok(())
            }
        };
        assert_eq!(read_body_with(chunks(&["a", "bc"]), 9, SECOND, &mut reserve).await.unwrap(), "abc");
        assert_eq!(code(read_body_with(chunks(&["d", "e"]), 9, SECOND, &mut reserve).await).0, 500);
        assert_eq!(left, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_408_and_a_broken_one_400() {
        let start = tokio::time::Instant::now();
        let drip = stream::repeat(()).then(|()| async {
            tokio::time::sleep(SECOND).await;
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        });
        assert_eq!(code(read_body(Body::from_stream(drip), 100, 5 * SECOND).await), (408, "body_timeout"));
        assert_eq!(start.elapsed(), 5 * SECOND);
        let broken = stream::iter([Ok(Bytes::from_static(b"x")), Err(io::Error::other("gone"))]);
        assert_eq!(code(read_body(Body::from_stream(broken), 100, SECOND).await), (400, "body_broken"));
    }
}
