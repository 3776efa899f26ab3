package android.media;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.IOException;
import org.jetbrains.annotations.Nullable;

public class MediaMetadataRetriever {
    public static final int METADATA_KEY_DURATION = 9;
    public static final int OPTION_CLOSEST = 3;

    public MediaMetadataRetriever() {}
    public void setDataSource(Context context, Uri uri) {}
    public @Nullable String extractMetadata(int keyCode) { return null; }
    public @Nullable Bitmap getScaledFrameAtTime(long timeUs, int option, int dstWidth, int dstHeight) { return null; }
    public void release() throws IOException {}
}
