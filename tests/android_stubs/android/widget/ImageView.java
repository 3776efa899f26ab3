package android.widget;

import android.content.Context;
import android.graphics.Bitmap;
import android.graphics.Matrix;
import android.view.View;

public class ImageView extends View {
    public ImageView(Context context) { super(context); }
    public boolean getAdjustViewBounds() { return false; }
    public void setAdjustViewBounds(boolean adjust) {}
    public void setImageBitmap(Bitmap bitmap) {}
    public Matrix getImageMatrix() { throw new UnsupportedOperationException(); }
}
