// SPDX-License-Identifier: Apache-2.0
// Certificate authorities and certificates, created for one test and removed after it.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <functional>
#include <memory>
#include <string>

namespace attnbias {

// A certificate and its private key, in PEM.
struct Identity {
  std::string certificate;
  std::string key;
};

// Returns the text that `write` writes to a BIO.
inline std::string Written(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), &BIO_free);
  write(bio.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);  // NOLINT
  return {data, static_cast<size_t>(size)};
}

// Signs certificates.
class Authority {
 public:
  explicit Authority(const std::string& name = "authority") {
    X509_set_pubkey(certificate_.get(), key_.get());
    Fill(certificate_.get(), name, certificate_.get());
    AddExtension(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
    X509_sign(certificate_.get(), key_.get(), EVP_sha256());
  }

  std::string pem() const { return PemOf(certificate_.get()); }

  // Makes an identity with the common name `name`, valid for the hosts `names`, such as
  // "DNS:localhost,IP:127.0.0.1".
  Identity Sign(const std::string& name,
                const std::string& names = "DNS:localhost,IP:127.0.0.1") const {
    const KeyPointer key = NewKey();
    const CertificatePointer certificate = NewCertificate();
    X509_set_pubkey(certificate.get(), key.get());
    Fill(certificate.get(), name, certificate_.get());
    AddExtension(certificate.get(), NID_subject_alt_name, names);
    X509_sign(certificate.get(), key_.get(), EVP_sha256());
    return {.certificate = PemOf(certificate.get()), .key = PemOf(key.get())};
  }

 private:
  using KeyPointer = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
  using CertificatePointer = std::unique_ptr<X509, decltype(&X509_free)>;

  static KeyPointer NewKey() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }
  static CertificatePointer NewCertificate() { return {X509_new(), &X509_free}; }

  static void Fill(X509* certificate, const std::string& name, const X509* issuer) {
    X509_set_version(certificate, X509_VERSION_3);
    static int serial = 0;
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  }

  static void AddExtension(X509* certificate, int nid, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }

  static std::string PemOf(X509* certificate) {
    return Written([certificate](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
  }
  static std::string PemOf(EVP_PKEY* key) {
    return Written([key](BIO* bio) {
      return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  KeyPointer key_ = NewKey();
  CertificatePointer certificate_ = NewCertificate();
};

}  // namespace attnbias
