/* smtp.h: the settings of a destination of type smtp. */
#ifndef OL_PUBLISH_MAIL_SMTP_H
#define OL_PUBLISH_MAIL_SMTP_H

#include "destinations/setting_types.h"

struct ol_smtp_settings {
    const char *url; /* smtp://host:port/hello once it is checked; the login is taken out of it */
    const char *from;
    const char *user, *password;
    const char *hello; /* the name sent in EHLO */
    enum ol_tls_mode tls;
    const char *ca_file;
};

#endif
