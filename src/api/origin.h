/* origin.h: which hosts and pages may talk to us from a browser. */
#ifndef OL_API_ORIGIN_H
#define OL_API_ORIGIN_H

#include "api/request.h"

/* False after having answered 403: in dev mode a Host that is not this machine (a page elsewhere might
 * have pointed its own name at us), or an Origin other than the Host. */
bool ol_origin_check(struct ol_request *request, bool is_dev);

#endif
