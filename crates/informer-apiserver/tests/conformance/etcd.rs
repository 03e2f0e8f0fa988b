//! Compaction of etcd. gRPC by hand, because it is one message with one number.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Compacts the etcd at an address up to a revision.
pub(crate) async fn compact(address: &str, mut revision: u64) {
    // A CompactionRequest: field 1, a varint.
    let mut message = vec![0x08];
    while revision >= 0x80 {
        message.push(u8::try_from(revision & 0x7f).unwrap() | 0x80);
        revision >>= 7;
    }
    message.push(u8::try_from(revision).unwrap());
    // Uncompressed flag, then the length.
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&message);
    let request = Request::post(format!("{address}/etcdserverpb.KV/Compact"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let end = body.collect().await.unwrap();
    let status = end.trailers().and_then(|trailers| trailers.get("grpc-status"));
    let status = status.or(head.headers.get("grpc-status")).unwrap();
    // Code 11, out of range: a later revision has been compacted already, which is sufficient.
    assert!(status == "0" || status == "11", "{status:?} {:?}", head.headers);
}
